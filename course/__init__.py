"""The problem sets with their solutions, and the grader: for instructors, held back from the published tree."""
