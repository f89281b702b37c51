"""The side of the application: flows, actions, contexts, collections and the client."""
