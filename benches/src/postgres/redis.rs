//! A private Redis for one run: loopback only, nothing on disk.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process::{self, Process};

pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let address = process::free_address()?;
        let mut command = Command::new("redis-server");
        command.arg("--bind").arg(address.ip().to_string()).arg("--port").arg(address.port().to_string());
        command.args(["--save", "", "--appendonly", "no"]).stdin(Stdio::null());
        let mut process = Process::spawn(&mut command, "Ready to accept connections")
            .context("Redis is needed for two nodes; on Debian it is the package redis-server")?;
        process.wait_until_ready()?;
        Ok(Self { process, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}
