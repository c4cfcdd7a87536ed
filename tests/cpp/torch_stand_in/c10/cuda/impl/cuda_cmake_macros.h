// torch's CPU wheels lack this generated header; empty, it serves for compiling the CUDA adapters.
#pragma once
