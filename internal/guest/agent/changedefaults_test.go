package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

func TestDefaultsThatABuildLeaves(t *testing.T) {
	b := startAgent(t, func(c *agent.Config) {
		write(t, c.ImageFile, `{"env":{"A":"image","B":"image","D":"image"},"workdir":"/usr","more":1}`, 0o644)
	})
	b.become(t, func(r *identityReq) { r.Env = map[string]string{"B": "clone"} })
	dir := t.TempDir()
	err := b.ChangeDefaults(t.Context(), agentclient.Defaults{
		Env: map[string]string{"A": "build", "B": "build", "C": "build"}, Workdir: dir, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	said := func() string {
		t.Helper()
		res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "pwd; echo $A $B $C $D; id -un"}})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	if got := said(); got != dir+"\nbuild clone build image\nroot\n" {
		t.Errorf("got %q", got)
	}
	b.become(t, func(r *identityReq) { r.Env = nil; r.SandboxId = "sb-00000002-0002" })
	if got := said(); got != dir+"\nbuild build build image\nroot\n" {
		t.Errorf("in a clone: %q", got)
	}
	file, err := os.ReadFile(filepath.Join(b.root, "image.json"))
	if err != nil || !strings.Contains(string(file), `"more": 1`) || !strings.Contains(string(file), `"C": "build"`) {
		t.Errorf("the image's file is %s, %v", file, err)
	}
}

func TestDefaultsThatCannotBe(t *testing.T) {
	b := startAgent(t)
	for want, d := range map[string]agentclient.Defaults{
		"invalid username: 'nobody-here'": {User: "nobody-here"},
		"cannot contain":                  {Env: map[string]string{"A=B": "c"}},
		"zero byte":                       {Env: map[string]string{"A": "c\x00"}},
	} {
		if err := b.ChangeDefaults(t.Context(), d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}
