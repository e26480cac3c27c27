/// Uses layers in every way, so that an error other than the one of the case would show.
macro_rules! use_layers {
    ($Input:ty; $($Layer:ident)*) => {$({
        let dev = AutoDevice::default();
        let mut layer = dev.build_module::<$Layer, f32>();
        let x: $Input = dev.sample_normal();
        let gradients = layer.alloc_grads();
        let y: $Input = layer.forward(x.clone());
        let _: $Input = layer.try_forward(y).unwrap();
        let (_, _weights) = layer.forward_with_weights(x.clone());
        let y = layer.forward_mut(x.clone().traced(gradients));
        let _ = y.square().mean().backward();
        let _: &Tensor<_, f32, _> = &layer.o_proj.bias;
        let _: (usize, u64) = ($Layer::PARAMS, $Layer::flops(1, 2, 3));

        type Block = (Residual<$Layer>, $Layer);
        let _: $Input = dev.build_module::<Block, f32>().forward(x);
    })*};
}
