"""`python -m cocos` is the command `cocos`."""

from cocos.cli import main

if __name__ == "__main__":
    main()
