//! The protocol's page says what the table says.
