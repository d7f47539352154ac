"""Files of teams over HTTP: OpenAI's `/v1/files`."""
