"""What is stored: frozen values and their state tables, without any I/O."""
