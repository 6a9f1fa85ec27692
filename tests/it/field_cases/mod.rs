//! Cases of the field that no other test shows. `docs/field-cases.md` lists all of them, and where each is shown.

mod conflicts;
mod document;
mod input;
mod leases;
mod migrations;
mod names;
mod network;
mod order;
mod reports;
mod restart;
