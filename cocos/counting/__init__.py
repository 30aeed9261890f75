"""What is counted: weights, statistics, conventions, health, forces, and the findings that are made of them."""
