"""What the library offers, over a real store; the registry of waiting pops also over pops that the test answers."""
