/* What the simulated driver calls itself. Programs that want a number find one, whoever reads it sees
 * what it is, and it may be the value of a label. */
#ifndef SIMULATED_VERSION_H
#define SIMULATED_VERSION_H

#define DRIVER_VERSION "580.00-simulated"
#define CUDA_VERSION 13000

#endif
