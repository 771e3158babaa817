"""What tests in more than one folder use; the studies use it, too."""
