// Routes with facts about the server in the forms of NVIDIA NIM: GET /v1/version, /v1/license, /v1/metadata and
// /v1/manifest; and GET /version in vLLM's.
#pragma once

#include <memory>

#include "server/access/model_view.h"
#include "server/http/http.h"
#include "server/openai/route_description.h"

namespace chorus::server {

// {release, api}.
HttpResponse describeVersion();
// {version}.
HttpResponse describePlainVersion();
// {name, path, sha, size, url, type, content}: the license of this program. sha: SHA-1 of the content; size: in
// characters. path is a file name, because the text is part of the program.
HttpResponse describeLicense();
// {version, assetInfo, licenseInfo, modelInfo, repository_override, selectedModelProfileId}. modelInfo has
// {shortName, modelUrl} of each model that the client may use, the base model first. The URLs, the assets and the
// profile are empty: models are local, and their paths are not shown. The memory of the answer is charged to the
// client.
HttpResponse describeMetadata(const ModelView& models, const std::shared_ptr<Client>& client);
// {manifest_file, repository_override}: a YAML text that lists the models with their fingerprints. Charged likewise.
HttpResponse describeManifest(const ModelView& models, const std::shared_ptr<Client>& client);

inline constexpr RouteDescription kVersionRoute{.summary = "The versions of server and API", .answer = "Version"};
inline constexpr RouteDescription kPlainVersionRoute{.summary = "The version of the server", .answer = "PlainVersion"};
inline constexpr RouteDescription kLicenseRoute{.summary = "The license of the server", .answer = "License"};
inline constexpr RouteDescription kMetadataRoute{.summary = "What is served: versions, license, models",
                                                 .answer = "Metadata"};
inline constexpr RouteDescription kManifestRoute{.summary = "The models with their fingerprints", .answer = "Manifest"};

}  // namespace chorus::server
