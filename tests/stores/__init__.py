"""What holds for one kind of store only: what users of the file itself see."""
