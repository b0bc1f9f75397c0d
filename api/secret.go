package api

// SecretPattern matches the name of a secret.
const SecretPattern = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$" // #nosec G101 -- a pattern

// SetSecretRequest is the body of PUT /v1/secrets/{secret}.
type SetSecretRequest struct {
	Value    string            `json:"value" doc:"The value, 1 byte to 64 KiB of text. No answer contains it" minLength:"1" maxLength:"65536" writeOnly:"true"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"Replaces the secret's metadata, at most 16 entries; absent: unchanged"`
}

// Secret describes a secret, without its value.
type Secret struct {
	ID          string            `json:"id" doc:"Identifies the secret; a secret made again under the same name has another"`
	Name        string            `json:"name" doc:"Name of the secret, which requests and policies use"`
	Tenant      string            `json:"tenant,omitempty" doc:"Owning tenant; absent: the operator"`
	Version     int               `json:"version" doc:"Version of the value, from 1; an equal value keeps it"`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"The client's own"`
	CreatedUnix int64             `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	UpdatedUnix int64             `json:"updated_at_unix" doc:"When it got its current value"`
	Damage      string            `json:"damage,omitempty" doc:"Why its value cannot be read; set it again or remove it"`
}

// SecretRef gives a secret to a sandbox as an environment variable.
type SecretRef struct {
	Name string `json:"name" doc:"Name of the secret" pattern:"^[A-Za-z_][A-Za-z0-9_-]{0,63}$" patternDescription:"1 to 64 letters, digits, - or _, and a letter or _ first"`
	Env  string `json:"env,omitempty" doc:"Environment variable with its value; absent: the secret's name" maxLength:"256"`
}

// HeldSecret is a secret that the memory or disk of a sandbox or snapshot may contain.
type HeldSecret struct {
	Name    string `json:"name" doc:"Name of the secret"`
	Version int    `json:"version" doc:"Version of the value"`
	Env     string `json:"env,omitempty" doc:"Environment variable with its value; absent: only the memory of an ancestor had it"`
	Void    bool   `json:"void,omitempty" doc:"The secret was rotated or removed since, so the contained value is worthless"`
}
