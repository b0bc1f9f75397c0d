package demo

import "testing"

func TestTheReasonIsThatOfThePort(t *testing.T) {
	const said = `2026-11-22T18:35:55Z  tcp 1.1.1.1:80  denied: no rule allows 1.1.1.1:80/tcp\n` +
		`2026-11-22T18:35:55Z  tcp 192.0.0.8:18081 (host.forkd.internal)  denied: no rule allows host.forkd.internal:18081/tcp\n`
	if got := reasonFor(said, "host.forkd.internal:18081"); got != "no rule allows host.forkd.internal:18081/tcp" {
		t.Errorf("got %q", got)
	}
	if got := reasonFor(said, "host.forkd.internal:18082"); got != "" {
		t.Errorf("another port's reason is %q", got)
	}
}
