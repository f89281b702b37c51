"""The API of applications: flows, actions, contexts, collections and the client."""
