package enginetest

import "github.com/forkd/forkd/internal/domain/sandbox"

// forkPrivate makes two sandboxes and returns them. If private is nil, the snapshot decides.
func (s suite) forkPrivate(tag string, private *bool) []sandbox.Info {
	s.t.Helper()
	r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: tag, N: 2, PrivatePorts: private})
	s.must(err)
	return s.children(r)
}

func (s suite) children(r sandbox.ForkResult) (out []sandbox.Info) {
	s.t.Helper()
	for _, c := range r.Children {
		s.must(c.Err)
		out = append(out, c.Info)
	}
	return out
}

// privatePorts checks that each sandbox has its own token, that branches inherit private ports, and
// that a rollback keeps the token.
func privatePorts(s suite) {
	yes, no := true, false
	seen := map[string]bool{}
	private := func(sbs ...sandbox.Info) {
		s.t.Helper()
		for _, sb := range sbs {
			listed, err := s.Engine.Get(sb.ID)
			s.must(err)
			if len(sb.TrafficToken) != 64 || listed.TrafficToken != sb.TrafficToken || seen[sb.TrafficToken] ||
				sb.PublicPorts || listed.PublicPorts {
				s.t.Errorf("%s has the token %q, the list says %q", sb.ID, sb.TrafficToken, listed.TrafficToken)
			}
			seen[sb.TrafficToken] = true
		}
	}
	public := func(sbs ...sandbox.Info) {
		s.t.Helper()
		for _, sb := range sbs {
			listed, err := s.Engine.Get(sb.ID)
			s.must(err)
			if open := (sandbox.PortAccess{Public: true}); sb.PortAccess() != open || listed.PortAccess() != open {
				s.t.Errorf("%s has the rule %+v, the list says %+v", sb.ID, sb.PortAccess(), listed.PortAccess())
			}
		}
	}
	public(s.forkPrivate(base, nil)...)
	sbs := s.forkPrivate(base, &yes)
	private(sbs...)
	r, err := s.Engine.Branch(s.t.Context(), sandbox.BranchRequest{SandboxID: sbs[0].ID, Tag: "b", N: 2})
	s.must(err)
	private(s.children(*r.Fork)...)
	if !s.info("b").PrivatePorts {
		s.t.Error("the snapshot does not say that its sandboxes are private")
	}
	private(s.forkPrivate("b", nil)...)
	opened := s.forkPrivate("b", &no)
	public(opened...)
	back, err := s.Engine.Rollback(s.t.Context(), opened[0].ID, "b")
	s.must(err)
	public(back)
	after, err := s.Engine.Rollback(s.t.Context(), sbs[0].ID, "b")
	s.must(err)
	if after.TrafficToken != sbs[0].TrafficToken {
		s.t.Error("a rollback changes the token")
	}
}
