"""Sockets that send at once and say when they were read: WebSocket, and streamed answers over HTTP."""
