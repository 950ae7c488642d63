//! Containers that clients can fill: they grow in bounded steps and give memory back.
//!
//! | file | responsibility |
//! |---|---|
//! | `chunked_vec` | a vector in chunks |
//! | `count` | counts that never go under zero |
//! | `deadline_heap` | places by their deadlines |
//! | `hash_key` | the secret of hash tables |
//! | `slab` | entries with stable places, and lists over them |
//! | `table` | a hash table that grows by linear hashing |

pub(crate) mod chunked_vec;
pub(crate) mod count;
pub(crate) mod deadline_heap;
pub mod hash_key;
pub(crate) mod slab;
pub mod table;
