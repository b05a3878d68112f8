"""What must survive what: power cuts, kills, broken files, hostile input, bent clocks."""
