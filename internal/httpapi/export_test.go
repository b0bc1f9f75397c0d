package httpapi

import "github.com/forkd/forkd/api"

// Routes lists "METHOD /path" of everything that was added.
func (s *Server) Routes() []string { return s.routes }

// SentinelCodes are the codes that the domain's errors map to.
func SentinelCodes() []api.Code {
	var out []api.Code
	for _, row := range sentinels() {
		out = append(out, row.code)
	}
	return out
}
