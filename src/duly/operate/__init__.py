"""Operations: admin actions, monitoring, health, `why` and redaction."""
