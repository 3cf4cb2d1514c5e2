"""What happens to a pod before it is stored: requests that cannot mean anything are refused, defaults filled in."""
