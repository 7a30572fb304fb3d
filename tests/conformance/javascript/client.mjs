// The client, unmodified, from where `./dev` installs it.
import { createRequire } from "node:module";

const installed = createRequire(new URL("../../../.venv/javascript/", import.meta.url));

export default installed("@kubernetes/client-node");
