//! Secrets of a process: drawn from the randomness of the system, kept in memory only and shown nowhere.

use corq_shards::collections::hash_key::HashKey;
use corq_shards::lease::token_stream::SecretKey;

/// The secret of one shard's hash tables.
pub fn hash_key() -> HashKey {
    // A random UUID is 122 bits of the system's randomness, and six that are known.
    HashKey::new(uuid::Uuid::new_v4().as_u128())
}

/// Makes a random key, from which the lock tokens of one shard are derived.
pub fn token_key() -> SecretKey {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    SecretKey::new(&bytes)
}
