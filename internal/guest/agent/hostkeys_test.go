package agent_test

import (
	"os"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

const keys = "/etc/ssh/ssh_host_"

func (b *bench) file(t *testing.T, name string) string {
	t.Helper()
	out, err := os.ReadFile(b.root + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// hasPair checks that a private key and its public file belong together.
func (b *bench) hasPair(t *testing.T, kind string) {
	t.Helper()
	key, err := ssh.ParsePrivateKey([]byte(b.file(t, keys+kind+"_key")))
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(b.file(t, keys+kind+"_key.pub")))
	if err != nil || string(public.Marshal()) != string(key.PublicKey().Marshal()) {
		t.Errorf("%s: the public key is another one: %v", kind, err)
	}
	if st, err := os.Stat(b.root + keys + kind + "_key"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: got %v, %v", kind, st.Mode(), err)
	}
}

func TestAForkHasHostKeysOfItsOwn(t *testing.T) {
	b := startAgent(t)
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		write(t, b.root+keys+kind+"_key", "the parent's", 0o600)
		write(t, b.root+keys+kind+"_key.pub", "the parent's", 0o644)
	}
	write(t, b.root+"/var/lib/dbus/machine-id", "the parent's", 0o644)
	if s := step(t, b.become(t, nil), "ssh-host-keys"); !s.GetDone() || s.GetError() != "" {
		t.Errorf("got %v", s)
	}
	b.hasPair(t, "ed25519")
	b.hasPair(t, "ecdsa")
	for _, name := range []string{"rsa_key", "rsa_key.pub"} {
		if _, err := os.Stat(b.root + keys + name); !os.IsNotExist(err) {
			t.Errorf("the parent's %s is still there: %v", name, err)
		}
	}
	if got := b.file(t, "/var/lib/dbus/machine-id"); got != newIdentity().MachineId+"\n" {
		t.Errorf("dbus has %q", got)
	}
	before := b.file(t, keys+"ed25519_key")
	b.become(t, nil)
	if b.file(t, keys+"ed25519_key") == before {
		t.Error("two forks share a host key")
	}
}

func TestAResumedSandboxStaysTheSameMachine(t *testing.T) {
	b := startAgent(t)
	write(t, b.root+keys+"ed25519_key", "x", 0o600)
	first := b.become(t, nil)
	key := b.file(t, keys+"ed25519_key")
	again := b.become(t, func(r *agentv1.IdentityRequest) { r.SameMachine = true })
	if again.GetBootId() != first.GetBootId() || b.file(t, "/run/forkd/boot_id") != first.GetBootId()+"\n" {
		t.Errorf("boot id %s became %s", first.GetBootId(), again.GetBootId())
	}
	if b.file(t, keys+"ed25519_key") != key || step(t, again, "ssh-host-keys").GetDone() {
		t.Error("the host key changed")
	}
	if b.sys.wipes != 1 || step(t, again, "wipe-on-fork").GetDone() {
		t.Errorf("marked memory was cleared %d times, want once, at the fork", b.sys.wipes)
	}
	if !again.GetKernelReseeded() || len(b.sys.seeds) != 2 || !step(t, again, "clock").GetDone() {
		t.Errorf("entropy and clock stayed: %v", again)
	}
	if other := b.become(t, nil); other.GetBootId() == first.GetBootId() {
		t.Error("a fork has its source's boot id")
	}
}
