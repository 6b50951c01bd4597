BEGIN TRANSACTION;
CREATE TABLE autofuse_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autofuse_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autofuse_schema" VALUES('0002');
CREATE TABLE calibration (
	environment_id INTEGER NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	value DOUBLE NOT NULL, 
	CONSTRAINT pk_calibration PRIMARY KEY (environment_id, name), 
	CONSTRAINT fk_calibration_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id)
);
INSERT INTO "calibration" VALUES(1,'copy_gb_s',123.5);
CREATE TABLE candidate (
	id INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	json TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	kernels INTEGER NOT NULL, 
	CONSTRAINT pk_candidate PRIMARY KEY (id), 
	CONSTRAINT fk_candidate_workload_id FOREIGN KEY(workload_id) REFERENCES workload (id), 
	CONSTRAINT uq_candidate_workload_id_digest UNIQUE (workload_id, digest)
);
INSERT INTO "candidate" VALUES(1,1,'base','{"plan":"base"}','random',2);
INSERT INTO "candidate" VALUES(2,1,'broken','{"plan":"broken"}','random',2);
INSERT INTO "candidate" VALUES(3,1,'good','{"plan":"good"}','random',2);
INSERT INTO "candidate" VALUES(4,1,'loose','{"plan":"loose"}','random',2);
INSERT INTO "candidate" VALUES(5,1,'slow','{"plan":"slow"}','random',2);
INSERT INTO "candidate" VALUES(6,1,'killed','{"plan":"killed"}','random',2);
INSERT INTO "candidate" VALUES(7,1,'segv','{"plan":"segv"}','random',2);
CREATE TABLE candidate_group (
	candidate_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	group_id INTEGER NOT NULL, 
	CONSTRAINT pk_candidate_group PRIMARY KEY (candidate_id, position), 
	CONSTRAINT fk_candidate_group_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_candidate_group_group_id FOREIGN KEY(group_id) REFERENCES group_ (id)
);
INSERT INTO "candidate_group" VALUES(1,0,1);
INSERT INTO "candidate_group" VALUES(1,1,2);
INSERT INTO "candidate_group" VALUES(1,2,1);
INSERT INTO "candidate_group" VALUES(2,0,3);
INSERT INTO "candidate_group" VALUES(2,1,2);
INSERT INTO "candidate_group" VALUES(2,2,3);
INSERT INTO "candidate_group" VALUES(3,0,4);
INSERT INTO "candidate_group" VALUES(3,1,2);
INSERT INTO "candidate_group" VALUES(3,2,4);
INSERT INTO "candidate_group" VALUES(4,0,5);
INSERT INTO "candidate_group" VALUES(4,1,2);
INSERT INTO "candidate_group" VALUES(4,2,5);
INSERT INTO "candidate_group" VALUES(5,0,6);
INSERT INTO "candidate_group" VALUES(5,1,2);
INSERT INTO "candidate_group" VALUES(5,2,6);
INSERT INTO "candidate_group" VALUES(6,0,7);
INSERT INTO "candidate_group" VALUES(6,1,2);
INSERT INTO "candidate_group" VALUES(6,2,7);
INSERT INTO "candidate_group" VALUES(7,0,8);
INSERT INTO "candidate_group" VALUES(7,1,2);
INSERT INTO "candidate_group" VALUES(7,2,8);
CREATE TABLE environment (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	device TEXT NOT NULL, 
	must TEXT NOT NULL, 
	stale TEXT NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (id), 
	CONSTRAINT uq_environment_digest UNIQUE (digest)
);
INSERT INTO "environment" VALUES(1,'50db951e94cc6f820a58d1ee529fedf6','1b9ce947b2b6c3dd38ad013cd0626dea','cpu','[["codegen","1"],["isa","avx2"]]','[["driver","5"],["power","90"]]');
INSERT INTO "environment" VALUES(2,'47f3a5b67cc023071ac55192ccec2a7e','1b9ce947b2b6c3dd38ad013cd0626dea','cpu','[["codegen","1"],["isa","avx2"]]','[["driver","6"],["power","90"]]');
CREATE TABLE event (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	codegen_s DOUBLE NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	measure_s DOUBLE NOT NULL, 
	sampler_s DOUBLE NOT NULL, 
	best_us DOUBLE NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	bound_us DOUBLE, gap DOUBLE, residual_us DOUBLE, 
	CONSTRAINT pk_event PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_event_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_event_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "event" VALUES(1,0,1,1.0,2.0,3.0,4.0,30.0,1,'random',NULL,NULL,NULL);
INSERT INTO "event" VALUES(1,1,3,1.0,2.0,3.0,4.0,10.0,3,'random',2.5,3.0,NULL);
CREATE TABLE group_ (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	text TEXT, 
	CONSTRAINT pk_group_ PRIMARY KEY (id), 
	CONSTRAINT uq_group__digest UNIQUE (digest)
);
INSERT INTO "group_" VALUES(1,'g-base',NULL);
INSERT INTO "group_" VALUES(2,'g-shared',NULL);
INSERT INTO "group_" VALUES(3,'g-broken',NULL);
INSERT INTO "group_" VALUES(4,'g-good','group text');
INSERT INTO "group_" VALUES(5,'g-loose',NULL);
INSERT INTO "group_" VALUES(6,'g-slow',NULL);
INSERT INTO "group_" VALUES(7,'g-killed',NULL);
INSERT INTO "group_" VALUES(8,'g-segv',NULL);
CREATE TABLE kernel_measurement (
	id INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	created VARCHAR(40) NOT NULL, 
	session_id INTEGER, 
	environment_id INTEGER NOT NULL, 
	group_id INTEGER NOT NULL, 
	launch TEXT NOT NULL, 
	cache VARCHAR(20) NOT NULL, 
	n INTEGER, 
	min_us DOUBLE, 
	q1_us DOUBLE, 
	median_us DOUBLE, 
	q3_us DOUBLE, 
	mean_us DOUBLE, 
	stdev_us DOUBLE, 
	stopped VARCHAR(20), 
	mode VARCHAR(20), 
	failure_kind VARCHAR(40), 
	failure_message TEXT, 
	max_rel_error DOUBLE, 
	codegen_s DOUBLE NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	measure_s DOUBLE NOT NULL, 
	sampler_s DOUBLE NOT NULL, 
	bound_us DOUBLE, 
	facts TEXT NOT NULL, 
	CONSTRAINT pk_kernel_measurement PRIMARY KEY (id), 
	CONSTRAINT ck_kernel_measurement_cache CHECK (cache IN ('cold', 'warm')), 
	CONSTRAINT ck_kernel_measurement_outcome CHECK ((median_us IS NULL) <> (failure_kind IS NULL)), 
	CONSTRAINT fk_kernel_measurement_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_kernel_measurement_group_id FOREIGN KEY(group_id) REFERENCES group_ (id), 
	CONSTRAINT fk_kernel_measurement_session_id FOREIGN KEY(session_id) REFERENCES session (id), 
	CONSTRAINT uq_kernel_measurement_uid UNIQUE (uid)
);
INSERT INTO "kernel_measurement" VALUES(1,'9f118390b7264ef78a8c7d2f8ea2c527','2026-11-22T06:37:16.166704+00:00',1,1,4,'{"block":128}','cold',30,4.0,4.5,5.0,5.5,5.1,0.25,'noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125,2.5,'[["registers", 32.0], ["bytes", 4096.0]]');
INSERT INTO "kernel_measurement" VALUES(2,'fa0bbe369db247cfbf8df90f49fb3cfd','2026-11-22T06:37:16.169654+00:00',NULL,1,3,'{"block":128}','cold',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'compile','ptxas: too many registers
\x00\udcff',NULL,0.25,1.5,0.75,0.125,2.5,'[["registers", 32.0], ["bytes", 4096.0]]');
INSERT INTO "kernel_measurement" VALUES(3,'c606ecef54e44ed8a060d86f9d59c7eb','2026-11-22T06:37:16.191807+00:00',1,1,6,'{"block":128}','cold',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'timeout','did not finish within 5 s',NULL,0.25,1.5,0.75,0.125,2.5,'[["registers", 32.0], ["bytes", 4096.0]]');
INSERT INTO "kernel_measurement" VALUES(4,'44532c523ba74fb283cd6ef0d5c8ee51','2026-11-22T06:37:16.197027+00:00',1,1,7,'{"block":128}','cold',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'crash','killed by SIGKILL',NULL,0.25,1.5,0.75,0.125,2.5,'[["registers", 32.0], ["bytes", 4096.0]]');
INSERT INTO "kernel_measurement" VALUES(5,'164c404ae939421ea52dd9984b5b207d','2026-11-22T06:37:16.201695+00:00',1,1,8,'{"block":128}','cold',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'crash','killed by SIGSEGV: x',NULL,0.25,1.5,0.75,0.125,2.5,'[["registers", 32.0], ["bytes", 4096.0]]');
CREATE TABLE measurement (
	id INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	created VARCHAR(40) NOT NULL, 
	session_id INTEGER, 
	environment_id INTEGER NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	stage VARCHAR(20) NOT NULL, 
	n INTEGER, 
	min_us DOUBLE, 
	q1_us DOUBLE, 
	median_us DOUBLE, 
	q3_us DOUBLE, 
	mean_us DOUBLE, 
	stdev_us DOUBLE, 
	cache VARCHAR(20), 
	stopped VARCHAR(20), 
	mode VARCHAR(20), 
	failure_kind VARCHAR(40), 
	failure_message TEXT, 
	max_rel_error DOUBLE, 
	codegen_s DOUBLE NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	measure_s DOUBLE NOT NULL, 
	sampler_s DOUBLE NOT NULL, 
	CONSTRAINT pk_measurement PRIMARY KEY (id), 
	CONSTRAINT ck_measurement_stage CHECK (stage IN ('search', 'final', 'baseline')), 
	CONSTRAINT ck_measurement_outcome CHECK ((median_us IS NULL) <> (failure_kind IS NULL)), 
	CONSTRAINT fk_measurement_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_measurement_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_measurement_session_id FOREIGN KEY(session_id) REFERENCES session (id), 
	CONSTRAINT uq_measurement_uid UNIQUE (uid)
);
INSERT INTO "measurement" VALUES(1,'8c59df508c5f41859b821d78b1eaa701','2026-11-22T06:37:16.148459+00:00',1,1,1,'random','baseline',30,29.0,29.5,30.0,30.5,30.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(2,'9bbeb507b67849669f12aef0467caecc','2026-11-22T06:37:16.157301+00:00',1,1,2,'random','search',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'compile','ptxas: too many registers
\x00\udcff',NULL,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(3,'5e485a40a9374f20bdcf2a27243ff05d','2026-11-22T06:37:16.161189+00:00',1,1,3,'random','search',30,9.0,9.5,10.0,10.5,10.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(4,'633f6aeaf90c4287b00d07fe1aa6175b','2026-11-22T06:37:16.164829+00:00',1,1,3,'random','final',30,9.5,10.0,10.5,11.0,10.6,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(5,'7423cbf119d64a789ed9eecfcb916c2c','2026-11-22T06:37:16.178856+00:00',NULL,1,4,'random','search',30,19.0,19.5,20.0,20.5,20.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(6,'a7a0b48dc2ab4f1e95bd4cf970861f1a','2026-11-22T06:37:16.186876+00:00',2,2,3,'random','search',30,10.0,10.5,11.0,11.5,11.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(7,'8963df946f084757a110ca8a13d19ee5','2026-11-22T06:37:16.190078+00:00',1,1,5,'random','search',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'timeout','did not finish within 5 s',NULL,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(8,'40a960b31b4b4155aba4708e3546177f','2026-11-22T06:37:16.195361+00:00',1,1,6,'random','search',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'crash','killed by SIGKILL',NULL,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(9,'522b7a8c65e1419e831a36950253b50e','2026-11-22T06:37:16.200085+00:00',1,1,7,'random','search',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'crash','killed by SIGSEGV: x',NULL,0.25,1.5,0.75,0.125);
CREATE TABLE session (
	id INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	environment_id INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	strategy TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	budget_s DOUBLE NOT NULL, 
	started VARCHAR(40) NOT NULL, 
	ended VARCHAR(40), 
	finished BOOLEAN, 
	trials INTEGER, 
	measured INTEGER, 
	codegen_s DOUBLE, 
	compile_s DOUBLE, 
	measure_s DOUBLE, 
	sampler_s DOUBLE, 
	best_id INTEGER, gap DOUBLE, residual_us DOUBLE, 
	CONSTRAINT pk_session PRIMARY KEY (id), 
	CONSTRAINT fk_session_best_id FOREIGN KEY(best_id) REFERENCES candidate (id), 
	CONSTRAINT fk_session_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_session_workload_id FOREIGN KEY(workload_id) REFERENCES workload (id), 
	CONSTRAINT uq_session_uid UNIQUE (uid)
);
INSERT INTO "session" VALUES(1,'a51e8a17a35c47eb84e84a7d2c5cf61d',1,1,'random',7,60.0,'2026-11-22T06:37:16.140087+00:00','2026-11-22T06:37:16.171044+00:00',1,9,6,1.0,2.0,3.0,4.0,3,0.25,-1.5);
INSERT INTO "session" VALUES(2,'2843ecfe1df44bce89a9f9aa14c7095f',2,1,'optuna',1,5.0,'2026-11-22T06:37:16.185117+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE session_baseline (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	CONSTRAINT pk_session_baseline PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_session_baseline_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_session_baseline_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "session_baseline" VALUES(1,0,'unfused',1);
INSERT INTO "session_baseline" VALUES(1,1,'xla-2022',1);
CREATE TABLE session_failure (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	CONSTRAINT pk_session_failure PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_session_failure_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "session_failure" VALUES(1,0,'timeout',1);
INSERT INTO "session_failure" VALUES(1,1,'compile',2);
CREATE TABLE verdict (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	other TEXT NOT NULL, 
	other_us DOUBLE NOT NULL, 
	best_us DOUBLE NOT NULL, 
	ratio DOUBLE NOT NULL, 
	low DOUBLE NOT NULL, 
	high DOUBLE NOT NULL, 
	outcome VARCHAR(20) NOT NULL, 
	CONSTRAINT pk_verdict PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_verdict_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "verdict" VALUES(1,0,'unfused',30.0,10.0,3.0,2.5,1e999,'faster');
CREATE TABLE workload (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	name TEXT NOT NULL, 
	nodes INTEGER NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (id), 
	CONSTRAINT uq_workload_digest UNIQUE (digest)
);
INSERT INTO "workload" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','graph text','toy',3);
CREATE INDEX ix_environment_fingerprint ON environment (fingerprint);
CREATE INDEX ix_candidate_group_group_id ON candidate_group (group_id);
CREATE INDEX ix_session_workload_id ON session (workload_id);
CREATE INDEX ix_measurement_candidate_id ON measurement (candidate_id);
CREATE INDEX ix_measurement_session_id ON measurement (session_id);
CREATE INDEX ix_kernel_measurement_group_id_environment_id ON kernel_measurement (group_id, environment_id);
CREATE INDEX ix_kernel_measurement_session_id ON kernel_measurement (session_id);
COMMIT;
