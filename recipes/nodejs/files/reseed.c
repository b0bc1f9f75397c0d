// A module for Node that has OpenSSL read new entropy of the kernel each time it is loaded. OpenSSL seeds its
// generator once per process, so clones would draw the same numbers, and Node has no function for it.
// Compiled by tcc when the service starts; Node and OpenSSL are declared here to need no headers.
void RAND_add(const void *buf, int num, double randomness);

// RAND_add reseeds from the kernel, whatever it is given.
void *napi_register_module_v1(void *env, void *exports)
{
	RAND_add("clone", 5, 0);
	return exports;
}

int node_api_module_get_api_version_v1(void)
{
	return 8;
}
