"""Messages of kubelet's APIs, generated from the .proto files beside this one.

In `src`, with the compiler of `grpcio-tools` 1.76:

    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. subak/node/plugin/api/*.proto
"""
