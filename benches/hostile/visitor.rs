//! The author of the hostile pods: makes and removes them, through criprobe or past it. Numbers in, calls out.

use std::path::Path;

use anyhow::{Context, Result};
use criprobe::{
    proto::cri::{self, runtime_service_client::RuntimeServiceClient},
    runtime,
};
use tokio::runtime::Runtime as Threads;
use tonic::transport::Channel;

use crate::tricks::{self, COUNT};

/// The way that the pods of one visit take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through criprobe.
    Through,
    /// To the runtime; criprobe learns of it by events and lists.
    Past,
}

/// The author at work.
pub(crate) struct Visitor {
    threads: Threads,
    through: RuntimeServiceClient<Channel>,
    past: RuntimeServiceClient<Channel>,
    tricks: Vec<usize>,
    ports: [u16; COUNT],
    /// The next pod's number.
    next: usize,
}

/// Pods that are there.
#[derive(Debug)]
pub(crate) struct Visit {
    way: Way,
    sandboxes: Vec<String>,
}

impl Visitor {
    pub(crate) fn new(
        criprobe: &Path,
        runtime: &Path,
        tricks: Vec<usize>,
        ports: [u16; COUNT],
    ) -> Result<Self> {
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = |socket: &Path| {
            let _entered = threads.enter();
            RuntimeServiceClient::new(runtime::channel(socket.to_owned()))
        };
        let (mut through, past) = (client(criprobe), client(runtime));
        // Its connection is there from the start, and none of what is left over in the end.
        threads.block_on(through.version(cri::VersionRequest::default()))?;
        Ok(Self { through, past, threads, tricks, ports, next: 0 })
    }

    /// Makes as many pods.
    pub(crate) fn arrive(&mut self, pods: usize, way: Way) -> Result<Visit> {
        let mut sandboxes = Vec::new();
        for _ in 0..pods {
            let number = self.next;
            self.next += 1;
            sandboxes
                .push(self.make(number, pods, way).with_context(|| format!("make hostile pod {number}"))?);
        }
        Ok(Visit { way, sandboxes })
    }

    /// Stops and removes them, the way they came.
    pub(crate) fn leave(&mut self, visit: Visit) -> Result<()> {
        let mut client = self.client(visit.way);
        self.threads.block_on(async {
            for id in visit.sandboxes {
                client.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await?;
                client.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id }).await?;
            }
            Ok(())
        })
    }

    /// Makes pod `number`, one of so many at once.
    fn make(&self, number: usize, pods: usize, way: Way) -> Result<String> {
        let sandbox = tricks::sandbox(number, pods);
        let mut client = self.client(way);
        self.threads.block_on(async {
            let request = cri::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
            let id = client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
            for config in tricks::containers(&self.tricks, &self.ports, pods) {
                let request = cri::CreateContainerRequest {
                    pod_sandbox_id: id.clone(),
                    config: Some(config),
                    sandbox_config: Some(sandbox.clone()),
                };
                let container_id = client.create_container(request).await?.into_inner().container_id;
                client.start_container(cri::StartContainerRequest { container_id }).await?;
            }
            Ok(id)
        })
    }

    fn client(&self, way: Way) -> RuntimeServiceClient<Channel> {
        match way {
            Way::Through => self.through.clone(),
            Way::Past => self.past.clone(),
        }
    }
}
