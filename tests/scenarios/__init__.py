"""Stories that cross the rooms of the house."""
