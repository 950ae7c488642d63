//! The settings of a server: each a flag, an environment variable and a key of the settings file, each with a name, a unit
//! and a bound. A wrong value stops the start with one line.
//!
//! | file | responsibility |
//! |---|---|
//! | `declared` | the settings, as flags |
//! | `bounds` | whether settings fit each other, and what follows from several |
//! | `environment` | which variable a setting is taken from, and which are passed over |
//! | `file` | the settings file: keys, values, lines |
//! | `host` | what `HOST` may be |
//! | `layers` | flag before environment before file before default |
//! | `origin` | where a value comes from |
//! | `setting` | every setting with its value and source |
//! | `values` | texts become values |

mod bounds;
mod declared;
mod environment;
mod file;
mod host;
mod layers;
mod origin;
mod setting;
mod values;

pub use bounds::client_memory_default_mb;
pub use declared::{Config, Durability, LogFormat, LogLevel, PlacementChoice};
pub use environment::{Environment, is_service_link};
pub use host::ListenHost;
pub use layers::{Layers, Problem};
pub use origin::{Origins, Source};
pub use setting::{Changed, Setting};
pub use values::{RequestsMax, free, is_off};
