//! What the coordinator's mind must know of the configuration.

use crate::config::{Config, ReadFrom};
use crate::proto::cluster::Settings;

pub(super) fn settings(config: &Config) -> Settings {
    Settings {
        seeds: config.seeds.clone(),
        max_redirects: config.max_redirects,
        follow_redirects: config.follow_redirects,
        strict_order: config.strict_order,
        replica_reads: config.read_from != ReadFrom::Primary,
        lazy: config.lazy,
        refresh_least: config.refresh_min_interval,
        refresh_most: config.refresh_max_interval,
        refresh_period: config.periodic_refresh,
        drain_limit: config.drain_limit,
    }
}
