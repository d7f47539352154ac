"""The OpenAPI document of the routes that consumers answer, made from their wire types."""
