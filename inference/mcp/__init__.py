"""Tools that the server runs: clients of MCP servers, and the loop that calls their tools."""
