from hvdtune.cli import main

main()
