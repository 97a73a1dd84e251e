/**
 * The image as an OCI layout (https://github.com/opencontainers/image-spec): the layers of the base, and one layer with
 * the bundles, which is the same for every architecture.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { type ArchivedFile, gzip, sha256, tar } from "./archive.ts";

const MANIFEST = "application/vnd.oci.image.manifest.v1+json";
const INDEX = "application/vnd.oci.image.index.v1+json";
const LAYER = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG = "application/vnd.oci.image.config.v1+json";
/** OCI names of Docker's media types, which some registries use. The bytes are the same. */
const OCI_NAMES: Readonly<Record<string, string>> = { "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER };
const INDEXES = [INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"];
export const ARCHITECTURES = ["amd64", "arm64"] as const;
type Architecture = (typeof ARCHITECTURES)[number];
const EPOCH = "1970-01-01T00:00:00Z";

const Platform = v.looseObject({ architecture: v.string(), os: v.string() });
const Descriptor = v.object({
  mediaType: v.string(),
  digest: v.pipe(v.string(), v.regex(/^sha256:[0-9a-f]{64}$/)),
  size: v.number(),
  platform: v.optional(Platform),
});
type Descriptor = v.InferOutput<typeof Descriptor>;
const Index = v.object({ manifests: v.array(Descriptor) });
const Manifest = v.object({ config: Descriptor, layers: v.array(Descriptor) });
const History = v.array(v.looseObject({}));
const Config = v.looseObject({
  config: v.optional(v.looseObject({ Env: v.optional(v.array(v.string())) }), {}),
  rootfs: v.object({ type: v.string(), diff_ids: v.array(v.string()) }),
  history: v.optional(History, []),
});
type Config = v.InferOutput<typeof Config>;

interface BaseImage {
  readonly config: Config;
  readonly layers: readonly Descriptor[];
  readonly platform: v.InferOutput<typeof Platform>;
}

export interface ImageOptions {
  /** The folder for the layout, which must not exist or must be empty. */
  readonly directory: string;
  readonly tag: string;
  readonly version: string;
  readonly files: readonly ArchivedFile[];
  /** An OCI layout of the base; without one the image has no Node.js, and does not start. */
  readonly base?: { readonly directory: string; readonly name: string };
}

/** Writes the layout; returns the digest that a cluster pulls the image by. Throws for a damaged base. */
export function writeImage({ directory, tag, version, files, base }: ImageOptions): string {
  const store = new Blobs(directory);
  const archive = tar(files);
  const layer = store.put(gzip(archive), LAYER);
  const manifests = ARCHITECTURES.map((architecture) => {
    const below = base === undefined ? emptyBase(architecture) : baseImage(base.directory, architecture, store);
    const config = store.putJson(configOf(below, `sha256:${sha256(archive)}`, version), CONFIG);
    const manifest = { schemaVersion: 2, mediaType: MANIFEST, config, layers: [...below.layers, layer] };
    return { ...store.putJson(manifest, MANIFEST), platform: below.platform };
  });
  const annotations = {
    "org.opencontainers.image.title": "podseidon",
    "org.opencontainers.image.version": version,
    "org.opencontainers.image.base.name": base?.name ?? "scratch",
  };
  const index = store.putJson({ schemaVersion: 2, mediaType: INDEX, manifests, annotations }, INDEX);
  const named = { ...index, annotations: { "org.opencontainers.image.ref.name": tag } };
  writeFileSync(join(directory, "oci-layout"), `${JSON.stringify({ imageLayoutVersion: "1.0.0" })}\n`);
  writeFileSync(
    join(directory, "index.json"),
    JSON.stringify({ schemaVersion: 2, mediaType: INDEX, manifests: [named] }),
  );
  return index.digest;
}

function configOf(base: BaseImage, diffId: string, version: string): unknown {
  const { Env = [] } = base.config.config;
  return {
    ...base.config,
    created: EPOCH,
    config: {
      ...base.config.config,
      // Like in the Containerfile: the Deployments' commands begin with `node`.
      Env: [...Env.filter((one) => !one.startsWith("PATH=")), "PATH=/nodejs/bin"],
      Entrypoint: undefined,
      Cmd: ["node", "/podseidon/webhook.mjs", "--help"],
      User: "65532:65532",
      WorkingDir: "/",
      Labels: { "org.opencontainers.image.title": "podseidon", "org.opencontainers.image.version": version },
    },
    rootfs: { type: "layers", diff_ids: [...base.config.rootfs.diff_ids, diffId] },
    history: [...base.config.history, { created: EPOCH, created_by: "npm run release" }],
  };
}

function emptyBase(architecture: Architecture): BaseImage {
  const platform = { architecture, os: "linux" };
  return {
    config: { ...platform, config: {}, rootfs: { type: "layers", diff_ids: [] }, history: [] },
    layers: [],
    platform,
  };
}

/** The base for one architecture, its layers copied. */
function baseImage(directory: string, architecture: Architecture, store: Blobs): BaseImage {
  const from = new Blobs(directory);
  const top = v.parse(Index, JSON.parse(readFileSync(join(directory, "index.json"), "utf8")));
  const found = leaves(top.manifests, from).find(
    ({ platform }) => platform?.os === "linux" && platform.architecture === architecture,
  );
  if (found?.platform === undefined) throw new Error(`the base in ${directory} is not there for linux/${architecture}`);
  const { config, layers } = v.parse(Manifest, from.json(found));
  const copied = layers.map((layer) => store.put(from.get(layer), OCI_NAMES[layer.mediaType] ?? layer.mediaType));
  return { config: v.parse(Config, from.json(config)), layers: copied, platform: found.platform };
}

/** The name where the layout has that digest. Somebody may have put any base there. */
export function nameOfBase(directory: string, name: string): string {
  const { manifests } = v.parse(Index, JSON.parse(readFileSync(join(directory, "index.json"), "utf8")));
  const digests = manifests.map(({ digest }) => digest);
  return digests.some((digest) => name.endsWith(`@${digest}`)) ? name : `unknown@${digests[0]}`;
}

/** The manifests of single images in nested indexes. */
function leaves(manifests: readonly Descriptor[], from: Blobs): readonly Descriptor[] {
  return manifests.flatMap((one) =>
    INDEXES.includes(one.mediaType) ? leaves(v.parse(Index, from.json(one)).manifests, from) : [one],
  );
}

/** The blobs of a layout, by digest. */
class Blobs {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = join(directory, "blobs", "sha256");
  }

  put(bytes: Uint8Array, mediaType: string): Descriptor {
    const digest = sha256(bytes);
    mkdirSync(this.#directory, { recursive: true });
    writeFileSync(join(this.#directory, digest), bytes);
    return { mediaType, digest: `sha256:${digest}`, size: bytes.length };
  }

  putJson(value: unknown, mediaType: string): Descriptor {
    return this.put(Buffer.from(JSON.stringify(value)), mediaType);
  }

  /** Throws when the bytes do not match the digest. */
  get({ digest }: Descriptor): Buffer {
    const bytes = readFileSync(join(this.#directory, digest.slice("sha256:".length)));
    if (`sha256:${sha256(bytes)}` !== digest) throw new Error(`the base is damaged: ${digest} has other bytes`);
    return bytes;
  }

  json(descriptor: Descriptor): unknown {
    return JSON.parse(this.get(descriptor).toString());
  }
}
