package arch

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/forkd/forkd/"

// pkg is what `go list` tells about a package.
type pkg struct {
	ImportPath, Dir string
	Imports, Deps   []string
	GoFiles         []string
}

func (p pkg) name() string { return short(p.ImportPath) }

// short is a package's path within the module. The standard library has an
// "internal" of its own.
func short(path string) string {
	if strings.HasPrefix(path, "internal/") {
		return "std/" + path
	}
	return strings.TrimPrefix(path, module)
}

// packages lists the module's packages, without their tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps,GoFiles", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

// rule forbids packages to depend on others. A name stands for the package and
// all below it.
type rule struct {
	who    []string
	but    []string // of who: the rule is not about them
	not    []string
	direct bool // only its own imports count, not what they import
	reason string
}

var hostSide = []string{
	"internal/vm/vmm", "internal/vm/vmctl", "internal/vm/kvm", "internal/vm/guestmem", "internal/vm/boot", "internal/engine", "internal/domain/sandbox", "internal/store/snapshot",
	"internal/images/image", "internal/store/layer", "internal/api/httpapi", "internal/machine/appliance", "internal/machine/hostcap", "internal/vm/virtio", "api", "client",
}

var rules = []rule{
	{who: []string{"cmd/forkd-agent", "internal/guest/agent"}, not: append([]string{"internal/guest/agentproto/agentclient"}, hostSide...),
		reason: "the agent runs in every guest: what it links costs memory there, and a guest must not hold the host's code"},
	{who: []string{"cmd/forkd-vmm", "internal/vm/vmm"}, not: []string{"net/http", "google.golang.org/protobuf", "connectrpc.com/connect", "github.com/spf13/cobra"},
		reason: "there is one VMM process per sandbox: each library it links is paid for a thousand times"},
	{who: []string{"internal/vm/vmm", "internal/vm/virtio", "internal/vm/boot", "internal/vm/guestmem", "internal/vm/kvm"},
		not:    []string{"internal/engine", "internal/domain/sandbox", "internal/api/httpapi", "internal/store/snapshot", "internal/images/image", "internal/machine/appliance", "internal/guest/agentproto"},
		reason: "dependencies point downwards: the VMM knows no sandboxes, stores or transports"},
	{who: []string{"cmd/forkd-vmm", "internal/vm/vmm"}, not: []string{"debug", "compress", "text", "html", "testing"},
		reason: "what a package makes at its start each VMM makes anew, and has in memory of its own"},
	{who: []string{"cmd/forkd-vmm", "cmd/forkd-agent"}, not: []string{"internal/sys/hostproc", "internal/guest/execclient", "github.com/prometheus"},
		reason: "reading the host's /proc and running programs in guests is the daemon's: its libraries cost memory in each VM"},
	{who: []string{"internal/guest/execclient"}, not: []string{"api", "client", "internal/domain/sandbox", "internal/api/httpapi", "internal/machine/appliance"},
		reason: "it is one program in a guest, for whoever can reach the agent"},
	{who: []string{"internal/vm/virtio"}, not: []string{"internal/vm/kvm", "internal/vm/vmm"},
		reason: "memory and interrupts come in as functions, so that devices are tested and fuzzed without a VM"},
	{who: []string{"internal/vm/usernet"}, not: []string{"os", "net/http", "syscall", "golang.org/x/sys", "internal/vm/kvm", "internal/vm/guestmem", "internal/net/netpolicy"}, direct: true,
		reason: "the engine opens nothing and judges nothing: frames come in by a port, and a Dialer opens the far ends"},
	{who: []string{"internal/vm/vmm"}, not: []string{"internal/vm/vmctl"},
		reason: "a VM has states and errors whoever asks for them: the machine knows no protocol"},
	{who: []string{"internal/vm/vmctl"}, not: []string{"internal/vm/vmm/live", "internal/vm/kvm", "internal/vm/guestmem", "internal/vm/virtio", "internal/vm/boot"},
		reason: "both ends of the control socket know a VM by its nouns only: the daemon's holds no machine, the VMM's is handed one"},
	{who: []string{"internal/vm/vmctl/wire"}, not: []string{"internal/vm/vmctl/client", "internal/vm/vmctl/server"},
		reason: "the two ends are built on what goes between them"},
	{who: []string{"internal/vm/vmctl/client"}, not: []string{"internal/vm/vmctl/server"},
		reason: "the ends meet on the wire only"},
	{who: []string{"internal/vm/vmctl/server"}, not: []string{"internal/vm/vmctl/client"},
		reason: "the ends meet on the wire only"},
	{who: []string{"internal/vm/kvm", "internal/leaf/vmspec", "internal/leaf/undo", "internal/vm/guestmem"}, not: []string{"internal/vm/vmm", "internal/vm/virtio", "internal/vm/boot", "internal/vm/vmctl"},
		reason: "they are the ground the VMM stands on"},
	{who: []string{"internal/store/extent"}, not: []string{"internal/store/layer", "internal/vm/guestmem", "internal/vm/vmm", "internal/vm/vmctl", "internal/store/overlay"}, direct: true,
		reason: "extents are arithmetic that all of them share: what they are written to and mapped by is not their business"},
	{who: []string{"internal/store/layer"}, not: []string{"internal/vm/vmm", "internal/vm/virtio", "internal/vm/kvm", "internal/vm/guestmem", "internal/store/snapshot", "internal/images/image", "internal/engine", "internal/domain/sandbox", "internal/api/httpapi", "api", "client"},
		reason: "layers serve memory and disks alike: they know blocks, and neither whose they are nor what maps them"},
	{who: []string{"internal/engine", "internal/domain/sandbox"}, not: []string{"internal/api/httpapi", "api", "client", "github.com/danielgtaylor/huma", "github.com/spf13/cobra"},
		reason: "the domain names no transport; httpapi puts HTTP over it"},
	{who: []string{"internal/engine", "internal/domain/sandbox", "internal/api/httpapi", "internal/images/image", "internal/store/snapshot", "internal/machine/appliance/testbench", "api", "client"}, not: []string{"internal/vm/kvm"}, direct: true,
		reason: "KVM is reached through the VMM; only hostcap, which measures it, and the appliance's init, which holds it, open it themselves"},
	{who: []string{"internal/api/ingress"}, not: []string{"internal/engine", "internal/api/httpapi", "internal/vm/vmctl", "internal/vm/vmm", "api", "client"},
		reason: "it carries HTTP to whatever its Dialer connects to: it knows no engine, and the API's tokens open nothing in it"},
	{who: []string{"internal/api/e2bapi"}, not: []string{"internal/engine", "internal/api/httpapi", "internal/api/ingress", "internal/vm/vmctl", "internal/vm/vmm", "api", "client"},
		reason: "it is a second API over the same words: the daemon hands it the engine and what carries requests to ports"},
	{who: []string{"internal/api/apierror", "internal/api/auditing", "internal/api/auth", "internal/api/guestproxy",
		"internal/api/listen", "internal/api/metrics", "internal/api/requestinfo", "internal/api/respond"},
		not:    []string{"internal/api/httpapi", "internal/engine", "internal/vm/vmm", "internal/vm/vmctl", "client", "github.com/spf13/cobra"},
		reason: "httpapi joins them: they know no route, and they are handed the engine"},
	{who: []string{"internal/api/apierror", "internal/api/requestinfo", "internal/api/respond", "internal/api/auth"},
		not:    []string{"internal/api/listen", "internal/api/auditing", "internal/api/metrics", "internal/api/guestproxy"},
		reason: "an error, the facts of a request and its principal are the words that the others use"},
	{who: []string{"internal/api/wire"}, not: []string{"internal/api/routing", "internal/api/httpapi", "net/http"}, direct: true,
		reason: "it converts values: it knows no request and no route"},
	{who: []string{"internal/api/routing", "internal/api/wire", "internal/api/intake"}, not: []string{"internal/api/routes", "internal/api/httpapi"},
		reason: "routes stand on them"},
	{who: []string{"internal/api/routes"}, not: []string{"internal/api/httpapi", "internal/api/listen", "internal/api/auditing", "internal/api/ui"},
		reason: "httpapi wires the families of routes: they know neither it nor what it puts around them"},
	{who: []string{"internal/domain/workspace"}, not: []string{"internal/engine", "internal/api/httpapi", "internal/domain/tenancy", "api", "client", "net/http"},
		reason: "it names sandboxes: how they are made, and who may see them, it is handed"},
	{who: []string{"internal/api/httpapi", "internal/api/routes"}, not: []string{"internal/engine"},
		reason: "the API names the domain's words, which are in internal/domain/sandbox; the daemon hands it the engine"},
	{who: []string{"internal/net/netpolicy", "internal/net/netdns"}, not: append([]string{"internal/vm/usernet", "net/http", "internal/guest/agent"}, hostSide...),
		reason: "what may be and what names mean is told by rules and questions alone: neither knows a VM, a wire or an API"},
	{who: []string{"internal/domain/sandbox"}, not: []string{"internal/engine", "internal/vm/vmm", "internal/vm/vmctl"},
		reason: "the domain's words do nothing: every room may know them, and they know no room"},
	{who: []string{"internal/api/httpapi", "internal/api/routes"}, not: []string{"internal/vm/vmm", "internal/vm/vmctl", "internal/vm/virtio", "internal/machine/appliance", "client", "github.com/spf13/cobra"},
		reason: "the API speaks to the domain, not to what lies below it"},
	{who: []string{"cmd/forkd", "internal/api/httpapi", "internal/engine", "internal/domain/sandbox"}, not: []string{"cmd/forkd-bench", "internal/sys/diskbench"},
		reason: "the product measures nothing for its own sake: benches and floors are forkd-bench's"},
	{who: []string{"cmd/forkd-bench"}, not: []string{"internal/engine", "internal/domain/sandbox", "internal/api/httpapi", "internal/vm/vmm", "internal/vm/vmctl", "internal/store/snapshot", "internal/images/image", "internal/store/layer"},
		reason: "a benchmark is a user of the API, of any build: what it measures beyond that is the kernel's alone"},
	{who: []string{"api"}, not: append([]string{"internal"}, "github.com", "google.golang.org", "golang.org/x", "connectrpc.com"),
		reason: "the wire types are the contract: anybody may import them at no cost"},
	{who: []string{"client"}, not: []string{"internal/engine", "internal/domain/sandbox", "internal/api/httpapi", "internal/vm/vmm", "internal/images/image", "internal/store/snapshot", "internal/machine/appliance"},
		reason: "a client knows the contract, not the server"},
	{who: []string{"internal/machine/appliance/guest"}, not: []string{"internal/machine/hostcap", "internal/images/kernelpkg", "internal/images/debtool"},
		reason: "the appliance's init runs in the appliance, where there is neither QEMU nor apt"},
	{who: []string{"internal/net/netwire"}, but: []string{"internal/vm/netclient"}, not: []string{"internal/vm/usernet"},
		reason: "forkd-net links the wire, and not the VMM's engine; netclient, the VMM's end, is that engine's Dialer"},
	{who: []string{"internal/net/netwire"}, not: []string{"internal/net/netd", "internal/net/netpolicy", "net/http"},
		reason: "the VMM links the wire: neither forkd-net's policy nor its HTTP"},
	{who: []string{"internal/net/netd", "internal/net/netproxy", "cmd/forkd-net"}, not: []string{"internal/vm/usernet", "internal/engine", "internal/domain/sandbox", "internal/vm/vmm", "internal/vm/vmctl", "internal/vm/kvm"},
		reason: "forkd-net knows wires and policies: neither engines nor machines nor the domain"},
	{who: []string{"internal/net/upstream"}, not: []string{"internal/net/netd", "internal/net/netpolicy", "internal/net/netdns", "net/http"},
		reason: "it dials what was judged, and the CLI links it to check a flag"},
	{who: []string{"internal/net/netproxy"}, not: []string{"internal/net/netd", "internal/net/netpolicy", "internal/net/netdns"},
		reason: "it reads names; who judges them calls it"},
	{who: []string{"internal/net/netd/control"}, not: []string{"internal/net/netd/ruled", "internal/net/netdns", "internal/net/netproxy", "net/http"},
		reason: "the daemon links it: it must not bring forkd-net along"},
	{who: []string{"internal/confine/jail"}, not: []string{"internal/vm/spawner", "internal/vm/vmctl", "internal/engine", "internal/vm/vmm"},
		reason: "it takes from a process, whatever that is, and starts none"},
	{who: []string{"cmd/forkd-spawn", "internal/vm/spawner/server", "internal/vm/spawner/wire"}, not: []string{"internal/engine", "internal/domain/sandbox", "internal/vm/kvm", "internal/vm/vmm/live", "net/http", "github.com/spf13"},
		reason: "forkd-spawn has privileges: it links what starting a VMM takes, and nothing that reads what others wrote"},
	{who: []string{"internal/vm/spawner/client"}, not: []string{"internal/vm/spawner/server"},
		reason: "the ends meet on the wire only"},
	{who: []string{"internal/vm/spawner/server"}, not: []string{"internal/vm/spawner/client", "internal/vm/vmctl/client"},
		reason: "the ends meet on the wire only"},
	{who: []string{"api", "client", "internal", "cmd"}, not: []string{"testing", "internal/engine/enginefake", "internal/testing/kvmtest", "internal/testing/bothways", "internal/testing/fakecluster", "internal/testing/kubebench", "internal/testing/procnode", "internal/testing/secretstest", "internal/testing/tartest"},
		reason: "test code does not go into programs"},
}

// testHelpers are packages for tests only; the last rule is not about them.
var testHelpers = []string{
	"cmd/forkd-bench/internal/measure/measuretest", "cmd/internal/clitest", "internal/api/e2bapi/e2btest",
	"internal/api/httpapi/fakeengine", "internal/confine/jail/jailtest", "internal/engine/enginefake",
	"internal/engine/enginetest", "internal/images/ecr/ecrtest", "internal/leaf/failpoint/failpointtest",
	"internal/net/netd/nettest", "internal/testing/kvmtest", "internal/testing/secretstest",
	"internal/testing/statictest", "internal/vm/virtio/virtiotest", "internal/vm/vmctl/vmctltest",
	"internal/net/upstream/proxytest", "internal/testing/bothways", "internal/testing/fakecluster", "internal/testing/kubebench", "internal/testing/procnode",
}

func TestFamiliesOfRoutesDoNotImportEachOther(t *testing.T) {
	const families = "internal/api/routes/"
	seen := 0
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.name(), families) {
			continue
		}
		seen++
		for _, imp := range p.Imports {
			if strings.HasPrefix(short(imp), families) {
				t.Errorf("%s imports %s: put what both need into internal/api/routing or internal/api/wire", p.name(), short(imp))
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d packages below %s, want the families of routes", seen, families)
	}
}

func TestDependencies(t *testing.T) {
	all := packages(t)
	for _, r := range rules {
		for _, p := range all {
			if !isOneOf(p.name(), r.who) || isOneOf(p.name(), r.but) || isOneOf(p.name(), testHelpers) {
				continue
			}
			deps := p.Deps
			if r.direct {
				deps = p.Imports
			}
			for _, d := range deps {
				if isOneOf(short(d), r.not) {
					t.Errorf("%s depends on %s, but %s", p.name(), d, r.reason)
				}
			}
		}
	}
}

// Every rule must speak of something, or a renamed package slips out of it.
func TestRulesNameExistingPackages(t *testing.T) {
	all := packages(t)
	for _, r := range rules {
		for _, who := range slices.Concat(r.who, r.but, r.not) {
			external := strings.Contains(who, ".") || !strings.Contains(who, "/") && !slices.Contains([]string{"api", "client", "internal", "cmd"}, who) || who == "net/http"
			if !external && !slices.ContainsFunc(all, func(p pkg) bool { return isOneOf(p.name(), []string{who}) }) {
				t.Errorf("the rule %q names %s, which is not there", r.reason, who)
			}
		}
	}
}

// isOneOf reports whether name is one of the packages or below one of them.
func isOneOf(name string, list []string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		return name == l || strings.HasPrefix(name, l+"/")
	})
}
