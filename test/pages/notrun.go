package pages

// exception is a block of commands that is not run.
type exception struct {
	page, first string // the page's file, and the beginning of the block's first line
	reason      string
}

// notRun lists the sh blocks of the pages. A console block is run and needs no entry. A test fails
// for an entry without a block, and for a block without an entry.
var notRun = []exception{
	{"README.md", "make demo", "runs make itself"},
	{"README.md", "make build", "runs make itself; Suite creates the same snapshot"},
	{"README.md", `eval "$(forkd e2b up`, "installs a package from the Internet; test/e2b runs the same program"},
	{"README.md", "make wheels", "runs make itself; test/contract and test/mcp run the client and the tools"},
	{"cli.md", "forkd serve", "serves until it is stopped; all suites start a daemon"},
	{"code-interpreter.md", "forkd image build code-interpreter-r", "builds from Debian's archive on the Internet for minutes; make codeinterp runs the image"},
	{"code-interpreter.md", "forkd image build code-interpreter-all", "builds from Debian's archive on the Internet for minutes; make codeinterp runs the image"},
	{"containers.md", "forkd image build docker", "builds from Debian's archive on the Internet; make test-recipes runs Docker in a sandbox"},
	{"e2b.md", "$ forkd serve --listen tcp://127.0.0.1:8889 &", "installs a package from the Internet; test/e2b runs the same program"},
	{"e2b.md", "$ forkd serve --listen tcp://127.0.0.1:8889 --e2b-private-ports", "serves until it is stopped"},
	{"frameworks.md", "harbor run", "needs a package from the Internet; make test-integrations runs it"},
	{"frameworks.md", "pip install ./sdk/python", "needs a package from the Internet; make test-integrations runs it"},
	{"hub.md", "forkd fork --from", "test/e2e forks from a registry that answers, that is slow, and that is down"},
	{"hub.md", "forkd hub generate-key", "packs the snapshot of the page once more; test/registries signs, and verifies with cosign"},
	{"identity.md", "forkd serve", "serves until it is stopped; test/e2e has a daemon with the flag"},
	{"identity.md", "curl --unix-socket", "runs in a sandbox with tokens; internal/guest/agent/tokencall has a client"},
	{"identity.md", "forkd identity show", "needs the data of a daemon with an issuer; cmd/forkd runs both commands"},
	{"images.md", "$ forkd image pull 127.0.0.1", "needs a registry with an image of Debian; test/e2e pulls one from its own"},
	{"images.md", "forkd image pull nginx", "needs a registry on the Internet; test/e2e pulls one from its own"},
	{"images.md", "forkd run registry.example.com", "needs an image with systemd; test/containers makes one and runs it"},
	{"ingress.md", "$ forkd port-forward", "serves until it is stopped; test/e2e forwards ports"},
	{"life.md", "forkd serve", "serves until it is stopped; test/e2e has a daemon with the flag"},
	{"mcp.md", "$ forkd mcp --listen", "serves until it is stopped; test/mcp runs clients of it"},
	{"network.md", "forkd fork py --allow deb.debian.org", "needs mirrors on the Internet; test/network installs from mirrors of its own"},
	{"network.md", "forkd snapshot create --from py", "needs mirrors on the Internet; test/network installs from mirrors of its own"},
	{"original.md", "forkd serve", "installs a package from the Internet; test/original runs it"},
	{"private-networks.md", "forkd net create shop", "test/network forks members, which find and reach each other"},
	{"private-networks.md", "forkd fork --group shop", "test/network forks groups, and checks their connections"},
	{"python.md", "$ make wheels", "runs make itself; the other blocks are run by sdk/python/tests/test_docs.py"},
	{"recipes.md", "forkd image build nodejs", "builds from Debian's archive on the Internet; make test-recipes forks it"},
	{"retention.md", "forkd snapshot create --image", "takes an id into a variable; test/e2e and the scripts of cmd/forkd prune snapshots"},
	{"volumes.md", "forkd volume create data", "needs a snapshot with slots for volumes; test/e2e has one"},
	{"volumes.md", "forkd pause OLD", "needs the sandbox of the block above; test/e2e moves a volume"},
	{"volumes.md", "forkd volume create kept", "needs a snapshot taken with a volume; test/e2e has one"},
	{"volumes.md", "forkd volume snapshot", "needs the volume of the block above; test/contract makes both"},
	{"buckets.md", "forkd secret set S3_ID", "needs a daemon with --secrets-key; test/e2e has one"},
	{"buckets.md", "forkd fork agent", "needs storage and rclone; test/network mounts with it in a guest"},
	{"buckets.md", "export AWS_ACCESS_KEY_ID", "is for programs in a guest"},
	{"secrets.md", "forkd secret generate-key", "serves until it is stopped; test/e2e has a daemon with the flag"},
	{"secrets.md", "forkd secret set", "needs a daemon with --secrets-key; test/e2e has one"},
	{"secrets.md", "forkd fork pyagent --secret", "needs a daemon with --secrets-key; test/e2e has one"},
	{"services.md", "ID=$(forkd fork py", "takes its id into a variable; test/e2e forks, kills and follows services"},
	{"services.md", "ID=$(forkd fork web", "takes its id into a variable, and needs a container image; a script of cmd/forkd declares its service"},
	{"services.md", "forkd service add $ID system", "needs an image with systemd; test/containers makes one and runs it"},
	{"ui.md", "$ forkd ui", "serves until it is stopped, for a browser; ui/test opens the page"},
}
