//! The methods of all services by their names: encoded requests in, encoded answers out. The servers that are generated
//! would hold all the code of a call once for each method.

use std::pin::Pin;

use bytes::Bytes;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use prost::Message;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, body::Body, server::Grpc};

use super::{images::Images, service::Runtime};
use crate::proto::{
    containerd::{
        content::content_server::{self, Content as _},
        events_server::{self, Events as _},
        tasks::tasks_server::{self, Tasks as _},
    },
    cri::{
        image_service_server::{self, ImageService as _},
        runtime_service_server::{self, RuntimeService as _},
    },
    encoded::{self, Encoded},
};

/// 16 MiB: what kubelet, crictl and containerd take as one message; a longer request is refused.
const MAX_MESSAGE: usize = 16 << 20;

/// What is sent for a call.
type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

type Answer = Result<Response<Messages>, Status>;

/// All services.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) runtime: Runtime,
    pub(super) images: Images,
}

impl Services {
    /// Answers a call.
    pub(super) async fn answer(self, request: HttpRequest<Body>) -> HttpResponse<Body> {
        let path = request.uri().path().to_owned();
        let call = move |request| self.clone().call(path.clone(), request);
        let mut server = Grpc::new(Encoded).max_decoding_message_size(MAX_MESSAGE);
        server.server_streaming(tower::service_fn(call), request).await
    }

    async fn call(self, path: String, request: Request<Bytes>) -> Answer {
        let Self { runtime, images } = self;
        let mut parts = path.split('/').skip(1);
        let (service, method) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let poses_as_containerd = runtime.0.poses_as_containerd;

        /// The method of that name, which takes and returns messages of its own, and answers with one or with many.
        macro_rules! answer {
            ($service:ident: $($name:literal $how:ident $method:ident,)*) => {
                match method {
                    $($name => {
                        let answer: Pin<Box<dyn Future<Output = Answer> + Send>> =
                            Box::pin(async move { $how($service.$method(read(request)?).await) });
                        answer.await
                    })*
                    _ => Err(Status::unimplemented(format!("unknown method {method}"))),
                }
            };
        }
        match service {
            runtime_service_server::SERVICE_NAME => answer!(runtime:
                "Version" one version,
                "Status" one status,
                "RuntimeConfig" one runtime_config,
                "UpdateRuntimeConfig" one update_runtime_config,
                "RunPodSandbox" one run_pod_sandbox,
                "StopPodSandbox" one stop_pod_sandbox,
                "RemovePodSandbox" one remove_pod_sandbox,
                "PodSandboxStatus" one pod_sandbox_status,
                "ListPodSandbox" one list_pod_sandbox,
                "StreamPodSandboxes" many stream_pod_sandboxes,
                "RestorePod" one restore_pod,
                "CreateContainer" one create_container,
                "StartContainer" one start_container,
                "StopContainer" one stop_container,
                "RemoveContainer" one remove_container,
                "ListContainers" one list_containers,
                "StreamContainers" many stream_containers,
                "ContainerStatus" one container_status,
                "UpdateContainerResources" one update_container_resources,
                "ReopenContainerLog" one reopen_container_log,
                "ExecSync" one exec_sync,
                "Exec" one exec,
                "Attach" one attach,
                "PortForward" one port_forward,
                "ContainerStats" one container_stats,
                "ListContainerStats" one list_container_stats,
                "GetContainerEvents" many get_container_events,
            ),
            image_service_server::SERVICE_NAME => answer!(images:
                "ListImages" one list_images,
                "ImageStatus" one image_status,
                "PullImage" one pull_image,
                "RemoveImage" one remove_image,
                "ImageFsInfo" one image_fs_info,
            ),
            content_server::SERVICE_NAME => answer!(images: "Read" many read,),
            events_server::SERVICE_NAME if poses_as_containerd => answer!(runtime:
                "Subscribe" many subscribe,
            ),
            tasks_server::SERVICE_NAME if poses_as_containerd => answer!(runtime:
                "Get" one get,
                "List" one list,
            ),
            _ => Err(Status::unimplemented(format!("unknown service {service}"))),
        }
    }
}

fn read<Q: Message + Default>(request: Request<Bytes>) -> Result<Request<Q>, Status> {
    let (metadata, extensions, message) = request.into_parts();
    Ok(Request::from_parts(metadata, extensions, encoded::read(message)?))
}

fn one(answer: Result<Response<impl Message>, Status>) -> Answer {
    answer.map(|answer| answer.map(|message| single(message.encode_to_vec().into())))
}

fn single(message: Bytes) -> Messages {
    Box::pin(tokio_stream::once(Ok(message)))
}

fn many<A: Message + 'static>(
    answer: Result<Response<impl Stream<Item = Result<A, Status>> + Send + 'static>, Status>,
) -> Answer {
    answer.map(|answer| {
        answer.map(|messages| -> Messages {
            Box::pin(messages.map(|message| message.map(|message| message.encode_to_vec().into())))
        })
    })
}
