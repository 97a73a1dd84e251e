import { checker } from "./check.ts";
import { PodProtector } from "./podprotector.ts";

/**
 * Returns `raw` itself, typed, when it is a PodProtector. Throws `SchemaError` with the path of the first field that is not as
 * the schema says. Unknown fields are left as they are, so that an object can be written back unchanged.
 */
export const parsePodProtector: (raw: unknown) => PodProtector = checker(PodProtector);
