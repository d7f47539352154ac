"""What every dialect's consumers share: reading a prompt, letting it in, relaying the answer."""
