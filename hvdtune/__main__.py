import hvdtune.cli

hvdtune.cli.main()
