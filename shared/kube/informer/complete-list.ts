import { type Listed, type Lister, listAll } from "../stream/list.ts";
import { WatchFailure } from "../stream/watch-failure.ts";
import { streamAll } from "../stream/watch-list.ts";

/** A page is parsed in one go: some 10 ms for as many pods; larger ones gain no time and hold more memory. */
const DEFAULT_PAGE_SIZE = 250;

/** Makes complete lists of one collection, by pages or as a stream, whichever the server offers (design 5.4, 8). */
export class CompleteList<T> {
  readonly #lister: Lister<T>;
  readonly #pageSize: number;
  #stream: boolean;

  constructor(lister: Lister<T>, options: { readonly pageSize?: number; readonly streamLists?: boolean }) {
    this.#lister = lister;
    this.#pageSize = options.pageSize ?? DEFAULT_PAGE_SIZE;
    this.#stream = options.streamLists ?? false;
  }

  /** How the next list is asked for. */
  get mode(): "pages" | "stream" {
    return this.#stream ? "stream" : "pages";
  }

  /**
   * A list at `floor` or later, or a quorum read. With a floor the server may answer from its cache; when it has not reached the
   * floor, only a quorum read tells why. Throws WatchFailure or TransportError.
   */
  async read(floor: string | undefined, signal: AbortSignal): Promise<Listed<T>> {
    try {
      return await this.#readAt(floor, signal);
    } catch (error) {
      const ahead = error instanceof WatchFailure && error.tag === "ahead-of-server";
      if (floor === undefined || !ahead) throw error;
      return await this.#readAt(undefined, signal);
    }
  }

  async #readAt(floor: string | undefined, signal: AbortSignal): Promise<Listed<T>> {
    if (this.#stream) {
      try {
        return await streamAll(this.#lister, floor, signal);
      } catch (error) {
        // Refused, or taken for an ordinary watch that never ends its list: a server that does not know it.
        if (!(error instanceof WatchFailure) || !["rejected", "ended-early"].includes(error.tag)) throw error;
        this.#stream = false;
      }
    }
    return await listAll(this.#lister, this.#pageSize, floor, signal);
  }
}
