import { type ApiserverClient, field } from "../../../scripts/control-plane/api-client.ts";
import { seededRandomness } from "../../support/runtime/virtual-ports.ts";

const OBJECTS = 60;
/** Characters of one to four bytes, so that some cuts are inside a character. */
const TEXT = "grün 🟢 東 x ".repeat(12);

/** Creates, changes and deletes ConfigMaps of one namespace without pause, straight at the apiserver, until stopped. */
export class Churn {
  readonly #client: ApiserverClient;
  readonly #maps: string;
  readonly #random = seededRandomness(42);
  #running: Promise<void> | undefined;
  #stopping = false;
  #marks = 0;
  writes = 0;

  constructor(client: ApiserverClient, namespace: string) {
    this.#client = client;
    this.#maps = `/api/v1/namespaces/${namespace}/configmaps`;
  }

  start(): void {
    this.#stopping = false;
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
    this.#running = undefined;
  }

  /** Writes a new object and resolves to its name. Retries until the server accepts it. */
  async mark(): Promise<string> {
    const name = `mark-${++this.#marks}`;
    for (;;) {
      const status = await this.#send("POST", this.#maps, { metadata: { name }, data: { text: TEXT } });
      if (status === 201 || status === 409) return name;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const name = `map-${Math.floor(this.#random.fraction() * OBJECTS)}`;
      const object = { metadata: { name }, data: { text: TEXT, n: `${this.writes}` } };
      const dice = this.#random.fraction();
      if (dice < 0.25) await this.#send("DELETE", `${this.#maps}/${name}`);
      else if ((await this.#send("POST", this.#maps, object)) === 409) {
        await this.#send("PUT", `${this.#maps}/${name}`, object);
      }
      this.writes++;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** The status, or 0 while the server is out of reach. */
  async #send(method: string, path: string, body?: unknown): Promise<number> {
    try {
      return (await this.#client.request(method, path, body, { timeoutMs: 5000 })).status;
    } catch {
      return 0;
    }
  }
}

/** The collection by a quorum read: its version, and each object as `name uid@version`. */
export async function quorumState(
  client: ApiserverClient,
  path: string,
): Promise<{ version: string; objects: string[] }> {
  const list = await client.get(path);
  const items = field(list, "items");
  const objects = (Array.isArray(items) ? items : []).map((item) => {
    const text = (name: string): string => String(field(item, "metadata", name));
    return `${text("name")} ${text("uid")}@${text("resourceVersion")}`;
  });
  return { version: String(field(list, "metadata", "resourceVersion")), objects: objects.sort() };
}
