//! Nobody who can log in to the database gets further than his role says, whatever he makes or sets there.

mod actors;
mod catalogue;
mod foreign_code;
mod hostile;
mod names;
mod scripts;
mod sessions;
mod wire;
