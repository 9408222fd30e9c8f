"""What a user gives, and what is said of it: flags, configurations and messages."""
