"""What a line may say: one class for each kind of statement, in one module for each family."""
