package pages

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// before has commands for a page that a reader does not need. They may name sandboxes of the page.
var before = map[string][]string{
	"contexts.md": {"echo token > lab.token", "unset FORKD_URL FORKD_TOKEN"},
	"dockerfiles.md": {`cat > Dockerfile <<'END'
FROM py
COPY hello.py /srv/
ENV GREETING=hello
CMD ["python3", "/srv/hello.py"]
END
echo 'import os; print(os.environ["GREETING"])' > hello.py`},
	"guest-fork.md": {`cat > three-ways.sh <<'END'
i=$(forkd-fork 3 | head -n1)
[ "$i" -gt 0 ] && { echo "way $i" > /tmp/out; forkd-exit 0 < /tmp/out; }
forkd-wait --results /tmp/results | sort
cat /tmp/results/*
END`},
	"mcp.md": {"unset FORKD_TOKEN"}, // it would be in the configuration
	"network.md": {`cat > policy.yaml <<'END'
default: deny
allow:
  - pypi.org:443
  - "*.pythonhosted.org:443"
  - 198.51.100.0/24:5432/tcp
END`},
	// verify refuses a snapshot whose digests are not computed yet.
	"snapshots.md": {"until forkd snapshot verify py; do sleep 0.2; done"},
	// OpenSSH takes the home directory from the user database.
	"ssh.md": {"echo 1,2 > report.csv",
		`ssh() { command ssh -F "$HOME/.ssh/config" "$@"; }; scp() { command scp -F "$HOME/.ssh/config" "$@"; }`},
	"timelines.md": {
		"forkd exec sb-pqq2iu3odj6epfbx -- sh -c 'echo theirs > ~/both; echo new > ~/new; mkfifo ~/pipe'",
		"forkd exec sb-pqq2iu3odj6epfbx -- sh -c 'rm ~/.profile; echo x >> ~/.bash_logout'",
		"forkd exec sb-eqkmacmydjlq322l -- sh -c 'echo ours > ~/both; echo y >> ~/.profile; sed -i 1s/^/z/ ~/.bash_logout'",
	},
}

// prepare runs the commands before a page's.
func (s *shell) prepare(t *testing.T, page string, m ids) {
	t.Helper()
	if page == "hub.md" {
		registry := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		t.Cleanup(registry.Close)
		s.alias(strings.TrimPrefix(registry.URL, "http://"), "localhost:5000")
	}
	for _, run := range before[page] {
		if out, code := s.command(t, command{run: run}, m); code != 0 {
			t.Fatalf("prepare %s: %s: exit code %d: %s", page, run, code, out)
		}
	}
}
