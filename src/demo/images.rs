//! The image service: names, and the configs that a test provides. Never pulls anything, and ignores credentials.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep;
use tonic::{Request, Response, Status};

use super::wall_nanos;
use crate::proto::cri::{self, image_service_server::ImageService};

/// 4,096 images: the next pull is answered ResourceExhausted.
const MAX_IMAGES: usize = 4096;

/// The config of an image that was pulled: there is no content.
const PULLED: &[u8] = br#"{"config": {}}"#;

/// The images that were pulled, by name.
#[derive(Clone)]
pub(super) struct Images {
    pulled: Arc<Mutex<BTreeMap<String, cri::Image>>>,
    /// By the image's id, of those that were added with one.
    configs: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    folder: PathBuf,
    /// How long a pull takes.
    pull: Duration,
}

impl Images {
    /// No images; `folder` is what ImageFsInfo names, `pull` is how long a pull takes.
    pub(super) fn new(folder: PathBuf, pull: Duration) -> Self {
        Self { pulled: Arc::default(), configs: Arc::default(), folder, pull }
    }

    /// Adds an image with a config, or gives it another one.
    pub(super) fn add(&self, name: &str, config: &[u8]) {
        self.configs().insert(reference(name), config.to_vec());
        let image = image(&tagged(name));
        self.pulled().insert(tagged(name), image);
    }

    /// Gives an image one more name, in front of the others.
    pub(super) fn tag(&self, name: &str, tag: &str) {
        if let Some(image) = self.pulled().get_mut(&tagged(name)) {
            image.repo_tags.insert(0, tagged(tag));
        }
    }

    /// The config of an image: of one that was pulled, next to nothing.
    pub(super) fn config(&self, id: &str) -> Option<Vec<u8>> {
        let config = self.configs().get(id).cloned();
        let is_pulled = self.pulled().values().any(|image| image.id == id);
        config.or_else(|| is_pulled.then(|| PULLED.to_vec()))
    }

    fn configs(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulled(&self) -> MutexGuard<'_, BTreeMap<String, cri::Image>> {
        self.pulled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the image of this name: made from the name, as there is no content. An id is its own.
pub(super) fn reference(name: &str) -> String {
    if name.starts_with("sha256:") {
        return name.to_owned();
    }
    let digits = (0..4u8).map(|part| {
        let mut hasher = DefaultHasher::new();
        (part, tagged(name)).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    });
    format!("sha256:{}", digits.collect::<String>())
}

/// A name with its tag: `latest` where it has neither tag nor digest.
fn tagged(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.contains([':', '@']) {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    }
}

/// The image of this name, which has a tag or a digest.
fn image(name: &str) -> cri::Image {
    let names = vec![name.to_owned()];
    let (repo_tags, repo_digests) = if name.contains('@') { (vec![], names) } else { (names, vec![]) };
    let spec = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
    cri::Image { id: reference(name), repo_tags, repo_digests, size: 1, spec, ..Default::default() }
}

fn is_named(image: &cri::Image, text: &str) -> bool {
    let name = tagged(text);
    image.id == text || image.repo_tags.contains(&name) || image.repo_digests.contains(&name)
}

fn named(spec: Option<cri::ImageSpec>) -> Result<String, Status> {
    let name = spec.map(|spec| spec.image).filter(|name| !name.is_empty());
    name.ok_or_else(|| Status::invalid_argument("no image is named"))
}

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(
        &self,
        request: Request<cri::ListImagesRequest>,
    ) -> Result<Response<cri::ListImagesResponse>, Status> {
        let filter = request.into_inner().filter.and_then(|filter| filter.image).map(|spec| spec.image);
        let wanted = filter.filter(|name| !name.is_empty());
        let pulled = self.pulled();
        let images = pulled.values().filter(|image| wanted.as_ref().is_none_or(|name| is_named(image, name)));
        Ok(Response::new(cri::ListImagesResponse { images: images.cloned().collect() }))
    }

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Result<Response<cri::ImageStatusResponse>, Status> {
        let name = named(request.into_inner().image)?;
        let image = self.pulled().values().find(|image| is_named(image, &name)).cloned();
        Ok(Response::new(cri::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(
        &self,
        request: Request<cri::PullImageRequest>,
    ) -> Result<Response<cri::PullImageResponse>, Status> {
        let name = tagged(&named(request.into_inner().image)?);
        let image = image(&name);
        let image_ref = image.id.clone();
        sleep(self.pull).await;
        let mut pulled = self.pulled();
        if pulled.len() >= MAX_IMAGES && !pulled.contains_key(&name) {
            let message = format!("the embedded runtime holds {MAX_IMAGES} images at most");
            return Err(Status::resource_exhausted(message));
        }
        pulled.insert(name, image);
        Ok(Response::new(cri::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Result<Response<cri::RemoveImageResponse>, Status> {
        let name = named(request.into_inner().image)?;
        self.pulled().retain(|_, image| !is_named(image, &name));
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<cri::ImageFsInfoRequest>,
    ) -> Result<Response<cri::ImageFsInfoResponse>, Status> {
        let usage = cri::FilesystemUsage {
            timestamp: wall_nanos(),
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: self.folder.display().to_string() }),
            used_bytes: Some(cri::UInt64Value { value: 0 }),
            inodes_used: Some(cri::UInt64Value { value: 0 }),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_means_latest() {
        let cases = [
            ("busybox", "busybox:latest"),
            ("busybox:1.36", "busybox:1.36"),
            ("localhost:5000/busybox", "localhost:5000/busybox:latest"),
            ("busybox@sha256:00", "busybox@sha256:00"),
        ];
        for (name, expected) in cases {
            assert_eq!(tagged(name), expected);
        }
        assert_eq!(reference("busybox"), reference("busybox:latest"));
        assert_ne!(reference("busybox"), reference("busybox:1"));
        assert_eq!(reference(&reference("busybox")), reference("busybox"));
    }
}
